from django.db import migrations, models


class Migration(migrations.Migration):
    operations = (
        migrations.CreateModel(
            "Note",
            [("id", models.BigAutoField(primary_key=True)), ("text", models.CharField(max_length=200))],
        ),
    )
